//! The id of a lease as a worker over HTTP has it: with the daemon's signature, so that no other worker can guess it.

use std::{fmt, str::FromStr};

use kvqueue_queue::{LeaseId, ParseLeaseIdError};

/// The signature: too long to be guessed while a lease lasts.
pub(crate) type Signature = [u8; 8];

/// A lease, and its signature. Leases of earlier versions of kvqueue, and of programs that use the database, have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseText {
    pub(crate) id: LeaseId,
    pub(crate) signature: Option<Signature>,
}

impl fmt::Display for LeaseText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)?;
        match self.signature {
            Some(signature) => write!(f, "-{:016x}", u64::from_be_bytes(signature)),
            None => Ok(()),
        }
    }
}

impl FromStr for LeaseText {
    type Err = ParseLeaseIdError;

    fn from_str(text: &str) -> Result<Self, ParseLeaseIdError> {
        let signed = text.rsplit_once('-').and_then(|(id, signature)| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            let is_signature =
                signature.len() == 2 * size_of::<Signature>() && signature.bytes().all(is_digit);
            let signature = u64::from_str_radix(signature, 16).ok().filter(|_| is_signature)?;
            Some(Self { id: id.parse().ok()?, signature: Some(signature.to_be_bytes()) })
        });
        signed.map_or_else(|| Ok(Self { id: text.parse()?, signature: None }), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_leases_round_trip_with_and_without_a_signature() {
        let session = "0123456789abcdef0123456789abcdef";
        for text in [format!("{session}-17"), format!("{session}-1-00ff00ff00ff00ff")] {
            let lease: LeaseText = text.parse().unwrap();
            assert_eq!((lease.to_string(), lease.signature.is_some()), (text.clone(), text.ends_with("ff")));
        }
        let long = format!("{session}-1234567890123456");
        assert_eq!(long.parse::<LeaseText>().unwrap().signature, None);
        for wrong in
            ["-1-00ff00ff00ff00f", "-1-00FF00ff00ff00ff", "-1-+0ff00ff00ff00ff", "-00ff00ff00ff00ff", "-1-"]
        {
            assert!(format!("{session}{wrong}").parse::<LeaseText>().is_err(), "{wrong}");
        }
    }
}
