//! Finding the few bytes that matter inside a JSON string, eight bytes at a time.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Whether a byte ends a run of plain text in a JSON string, read or written.
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// A word whose byte is marked where the byte of `word` is zero.
///
/// A borrow may mark bytes above a zero by mistake, never below: the lowest mark is right.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// How many bytes `text` begins with that are no quote, no backslash and no control character.
pub(crate) fn plain_run(text: &[u8]) -> usize {
    let mut run = 0;
    for chunk in text.chunks_exact(8) {
        let Ok(bytes) = <[u8; 8]>::try_from(chunk) else { break };
        let word = u64::from_le_bytes(bytes);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let quote = zero_bytes(word ^ (ONES * b'"' as u64));
        let backslash = zero_bytes(word ^ (ONES * b'\\' as u64));
        let marks = control | quote | backslash;
        if marks != 0 {
            return run + (marks.trailing_zeros() / 8) as usize;
        }
        run += 8;
    }
    let tail = text.get(run..).unwrap_or_default();
    run + tail.iter().position(|byte| is_special(*byte)).unwrap_or(tail.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_special_byte_is_found_at_each_place_and_no_other_is() {
        for len in 0..40_usize {
            for place in 0..len {
                for byte in 0..=255_u8 {
                    for filler in [b'a', 0x7F, 0x80, 0xFF, b'!', b'#', b'[', b']'] {
                        let mut text = vec![filler; len];
                        if let Some(slot) = text.get_mut(place) {
                            *slot = byte;
                        }
                        let expected = if is_special(byte) { place } else { len };
                        assert_eq!(
                            plain_run(&text),
                            expected,
                            "{len} {place} {byte:#x} {filler:#x}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_of_two_neighbours_wins() {
        for byte in 0..=255_u8 {
            let text = [b'x', b'"', byte, byte, b'x', b'x', b'x', b'x', b'x'];
            assert_eq!(plain_run(&text), 1);
            let text = [b'x', 0x1F, byte, b'\\', b'x', b'x', b'x', b'x', b'x'];
            assert_eq!(plain_run(&text), 1);
        }
    }
}
