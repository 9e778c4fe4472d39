//! Ranges of keys.

/// The first key behind this one: the end of the range that holds it alone.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0x00]].concat()
}

/// The tuple layer's range of a packed tuple: every key with further elements behind it.
pub(crate) fn range(tuple: &[u8]) -> (Vec<u8>, Vec<u8>) {
    ([tuple, &[0x00]].concat(), [tuple, &[0xff]].concat())
}
