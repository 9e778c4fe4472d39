//! The atomic operations, restated on numbers where they are about numbers.

/// Codes that the C API accepts for an atomic operation.
pub const CODES: &[u32] = &[2, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20];

const VALUE_LIMIT: usize = 100_000;

/// `bytes` made `len` long: cut, or filled with zeros.
fn fit(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut fitted = bytes.to_vec();
    fitted.resize(len, 0);
    fitted
}

/// Little-endian numbers compare by their last byte first.
fn less(a: &[u8], b: &[u8]) -> bool {
    a.iter().rev().lt(b.iter().rev())
}

/// The value after operation `code` with `operand`.
pub fn apply(code: u32, old: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>> {
    let Some(old) = old else {
        return if code == 20 { None } else { Some(operand.to_vec()) };
    };
    let same = fit(old, operand.len());
    let each = |f: fn(u8, u8) -> u8| same.iter().zip(operand).map(|(a, b)| f(*a, *b)).collect::<Vec<u8>>();
    let new = match code {
        2 => {
            let mut carry = 0u32;
            let mut sum = Vec::new();
            for (a, b) in same.iter().zip(operand) {
                carry += u32::from(*a) + u32::from(*b);
                sum.push(u8::try_from(carry % 256).unwrap());
                carry /= 256;
            }
            sum
        }
        6 | 19 => each(|a, b| a & b),
        7 => each(|a, b| a | b),
        8 => each(|a, b| a ^ b),
        9 if old.len() + operand.len() > VALUE_LIMIT => old.to_vec(),
        9 => [old, operand].concat(),
        12 if less(&same, operand) => operand.to_vec(),
        13 | 18 if less(operand, &same) => operand.to_vec(),
        12 | 13 | 18 => same,
        16 => old.min(operand).to_vec(),
        17 => old.max(operand).to_vec(),
        20 if old == operand => return None,
        20 => old.to_vec(),
        _ => panic!("{code} is not an atomic operation on a value"),
    };
    Some(new)
}
