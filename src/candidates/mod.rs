//! Search spaces: parameters, values, constraints and a baseline, one file an operation.
