//! The walk itself: plan, compile, measure in rounds, decide, commit.
