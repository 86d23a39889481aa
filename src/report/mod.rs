//! Results and events to a writer, as a table or as JSON.
