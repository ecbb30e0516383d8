//! A thousand bundles that are damaged at random, with a seed.

use super::{Parts, archive_of, check_store, plan, store};
use crate::{StoreError, peek};

/// Numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }
}

/// Damages an archive in one of many ways.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let blocks = bytes.len() / 512;
    let block = random.below(blocks) * 512;
    match random.below(9) {
        0 => {
            let place = random.below(bytes.len());
            bytes[place] ^= 1 << random.below(8);
        }
        1 => bytes.truncate(random.below(bytes.len())),
        2 => {
            let other = random.below(blocks) * 512;
            for offset in 0..512 {
                bytes.swap(block + offset, other + offset);
            }
        }
        3 => bytes[block..block + 512].fill(0),
        4 => {
            let copy = bytes[block..block + 512].to_vec();
            bytes.splice(block..block, copy);
        }
        5 => {
            let end = (block + random.below(8) * 512).min(bytes.len());
            bytes.drain(block..end);
        }
        6 => {
            // A field of a header, with a checksum that fits.
            let place = [0, 100, 124, 136, 156, 157, 257, 345][random.below(8)] + random.below(8);
            bytes[block + place] = [0, b'0', b'1', b'7', b'/', b'.', 0x80, 0xff][random.below(8)];
            let mut header = tar::Header::from_byte_slice(&bytes[block..block + 512]).clone();
            header.set_cksum();
            bytes[block..block + 512].copy_from_slice(header.as_bytes());
        }
        7 => {
            // A digit or a letter of a document.
            let text: Vec<_> = (0..bytes.len()).filter(|place| bytes[*place].is_ascii_alphanumeric()).collect();
            if let Some(place) = text.get(random.below(text.len())) {
                bytes[*place] = b"0123456789abcdefz"[random.below(17)];
            }
        }
        _ => {
            let place = random.below(bytes.len());
            let junk: Vec<_> = (0..random.below(2000)).map(|_| random.below(256) as u8).collect();
            bytes.splice(place..place, junk);
        }
    }
}

/// How many rounds, and the numbers for them.
fn rounds() -> (usize, Random) {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    (number("GPUX_FUZZ_ITERATIONS", 1000) as usize, Random(number("GPUX_FUZZ_SEED", 50)))
}

#[test]
fn no_damage_makes_another_pipeline_or_a_panic() {
    let (folder, store) = store();
    let path = folder.path().join("bundle.tar");
    let originals = [archive_of(&plan()), (Parts::new().pack(), super::add(&Parts::new().pack()).unwrap())];
    let (rounds, mut random) = rounds();
    let (mut refused, mut kinds) = (0, std::collections::BTreeSet::new());
    for round in 0..rounds {
        let (bytes, expected) = &originals[round % 2];
        let mut bytes = bytes.clone();
        for _ in 0..=random.below(3) {
            if bytes.len() >= 512 {
                mutate(&mut bytes, &mut random);
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        match store.add_bundle(&path, None, &mut |_| {}) {
            Ok(added) => assert_eq!(&added, expected, "round {round}"),
            Err(StoreError::Bundle { fault, .. }) => {
                let words = fault.to_string();
                kinds.insert(format!("{fault:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned());
                assert!(words.len() < 2000, "round {round}: {words}");
                refused += 1;
            }
            Err(error) => panic!("round {round}: {error}"),
        }
        assert!(peek(&path).is_err() || peek(&path).unwrap().manifest == expected.manifest, "round {round}");
        check_store(&store);
        for entry in store.root().join("blobs/sha256").read_dir().unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    assert!(refused > rounds * 4 / 5, "{refused}");
    assert!(kinds.len() >= 12, "{kinds:?}");
}

/// Documents that are changed at random, with digests that fit: whatever is taken has files that stay in their folder.
#[test]
fn changed_documents_name_no_file_elsewhere() {
    const WORDS: [&str; 16] = [
        "..",
        "/",
        "\\",
        "\"",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "null",
        "-1",
        "1e999",
        "99999999999999999999",
        "layers",
        "\u{202e}",
    ];
    let (folder, store) = store();
    let path = folder.path().join("bundle.tar");
    let parts = Parts::new();
    let manifest = serde_json::to_string(&parts.manifest).unwrap();
    let (rounds, mut random) = rounds();
    let mut taken = 0;
    for round in 0..rounds {
        let mut changed = manifest.clone();
        for _ in 0..=random.below(2) {
            let place = random.below(changed.len());
            let end = (place + random.below(12)).min(changed.len());
            if changed.is_char_boundary(place) && changed.is_char_boundary(end) {
                changed.replace_range(place..end, WORDS[random.below(WORDS.len())]);
            }
        }
        std::fs::write(&path, parts.pack_with(changed.as_bytes())).unwrap();
        match store.add_bundle(&path, None, &mut |_| {}) {
            Ok(added) => {
                taken += 1;
                assert!(added.files.iter().all(|file| crate::is_safe(&file.path)), "round {round}: {added:?}");
            }
            Err(StoreError::Bundle { .. }) => {}
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    check_store(&store);
    assert!(taken < rounds / 2, "{taken}");
}
