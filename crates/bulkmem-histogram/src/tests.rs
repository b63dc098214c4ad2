use super::*;

#[test]
fn every_length_is_in_its_class() {
    for length in [0, 1, 2, 3, 4, 7, 8, 255, 256, (1 << 46) - 1, 1 << 46, usize::MAX] {
        let (from, to) = lengths_of(class_of(length));
        assert!((from..=to).contains(&(length as u64)), "{length}: {from}–{to}");
    }
    for class in 1..CLASSES {
        assert_eq!(lengths_of(class).0, lengths_of(class - 1).1 + 1);
    }
}

#[test]
fn records_have_whole_pages() {
    assert_eq!((RECORD_BYTES % 4096, FILE_BYTES), (0, size_of::<Histogram>()));
}
