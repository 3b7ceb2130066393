//! The slots of a cluster.

/// The slot of a key: of what stands between its first braces, where they hold something.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % 16_384
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let length = rest.iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &rest[..length])
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12182);
        for (one, other) in [("{foo}bar", "foo"), ("a{foo}{bar}", "foo"), ("{{bar}}", "{bar")] {
            assert_eq!(slot_of(one.as_bytes()), slot_of(other.as_bytes()), "{one}");
        }
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
    }
}
