//! `GIT binary patch` blocks: whole contents, deflated, in git's base 85, both ways so that a patch
//! can be taken back.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest as _, Sha1};

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Bytes per line of a block.
const LINE: usize = 52;

/// The name git gives to these bytes as a blob, 40 hex digits.
pub(super) fn blob_name(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hasher
        .finalize()
        .iter()
        .fold(String::with_capacity(40), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
}

/// The block that makes `new` of `old`, and back.
pub(super) fn write(out: &mut Vec<u8>, old: &[u8], new: &[u8]) {
    out.extend_from_slice(b"GIT binary patch\n");
    literal(out, new);
    literal(out, old);
}

fn literal(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(format!("literal {}\n", bytes.len()).into_bytes());
    for chunk in deflated(bytes).chunks(LINE) {
        let length = chunk.len() as u8;
        out.push(match length {
            1..=26 => b'A' + length - 1,
            _ => b'a' + length - 27,
        });
        for four in chunk.chunks(4) {
            let mut word = [0; 4];
            word[..four.len()].copy_from_slice(four);
            let mut value = u32::from_be_bytes(word);
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = ALPHABET[(value % 85) as usize];
                value /= 85;
            }
            out.extend_from_slice(&digits);
        }
        out.push(b'\n');
    }
    out.push(b'\n');
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail; an empty block would be refused by git, not misread.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn blobs_are_named_as_git_names_them() {
        assert_eq!(
            super::blob_name(b""),
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
        );
    }
}
