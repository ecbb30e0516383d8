//! The step
