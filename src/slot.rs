//! The slots of a cluster.

use crc::{CRC_16_XMODEM, Crc};

static CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key: of what stands between its first braces, where they hold something.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    CRC.checksum(tag(key).unwrap_or(key)) % 16_384
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let length = rest.iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &rest[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(CRC.checksum(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12182);
        for (one, other) in [("{foo}bar", "foo"), ("a{foo}{bar}", "foo"), ("{{bar}}", "{bar")] {
            assert_eq!(slot_of(one.as_bytes()), slot_of(other.as_bytes()), "{one}");
        }
        assert_eq!(slot_of(b"foo{}{bar}"), CRC.checksum(b"foo{}{bar}") % 16_384);
    }
}
