//! The simulation against itself: a bounded part of the histories, the model, and the faults that both have to find.

mod histories;
mod model;
