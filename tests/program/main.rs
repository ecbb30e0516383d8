//! Black-box tests of the program and the checks of its structure, in one binary.

mod architecture;
mod cases;
mod digits;
