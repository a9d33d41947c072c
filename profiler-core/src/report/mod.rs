//! One report model for text and JSON.
