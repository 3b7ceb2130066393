//! The engine against scripts, against a naive model, and in small worlds searched through.

mod memory;
mod model;
mod op;
mod story;
mod world;

mod crowds;
mod deadlocks;
mod properties;
mod replay;
mod small_worlds;
mod stories;
