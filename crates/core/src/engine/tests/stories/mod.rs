//! One sentence of the contract after another, told as stories.

mod events;
mod fences;
mod holding;
mod sessions;
mod several;
mod sharing;
mod waiting;

use super::story::check;
