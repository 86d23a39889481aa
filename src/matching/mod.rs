//! Labels of a module to recorded invocations of a device, with the reason of each match and miss.
