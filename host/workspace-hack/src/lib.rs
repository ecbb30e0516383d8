//! Nothing: its dependencies are what it is for, as cargo-hakari generates such crates.
