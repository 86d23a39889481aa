//! Pure: samples in, verdict out.
