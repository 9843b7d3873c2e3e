//! Names as git writes them with `core.quotePath` on: as they are, or in double quotes with C
//! escapes when a byte would be misread.

/// `prefix` and `name`, quoted together when need be.
pub(super) fn quoted(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    let is_odd = |b: &u8| !(0x20..0x7f).contains(b) || matches!(b, b'"' | b'\\');
    if !name.iter().any(is_odd) {
        return [prefix, name].concat();
    }
    let mut out = vec![b'"'];
    out.extend_from_slice(prefix);
    for byte in name {
        let letter = match byte {
            0x07 => b'a',
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0b => b'v',
            0x0c => b'f',
            b'\r' => b'r',
            b'"' | b'\\' => *byte,
            byte if is_odd(byte) => {
                out.extend(format!("\\{byte:03o}").into_bytes());
                continue;
            }
            byte => {
                out.push(*byte);
                continue;
            }
        };
        out.extend([b'\\', letter]);
    }
    out.push(b'"');
    out
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn odd_names_are_quoted_as_git_does() {
        let text = |name: &[u8]| String::from_utf8(quoted(b"a/", name)).unwrap();
        assert_eq!(text(b"x y"), "a/x y");
        assert_eq!(
            text(b"\xc3\xa9\t\n\"\\\x1b\x07\x7f"),
            r#""a/\303\251\t\n\"\\\033\a\177""#
        );
    }
}
