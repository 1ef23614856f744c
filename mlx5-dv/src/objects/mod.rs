//! Firmware objects, one noun a file: the control path.
