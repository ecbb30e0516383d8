//! Attacks on the folders that it is granted; the first of them, unless it says otherwise.

use std::mem::forget;

use crate::wasi::filesystem::preopens::get_directories;
use crate::wasi::filesystem::types::{
    Descriptor, DescriptorFlags as Flags, ErrorCode, NewTimestamp, OpenFlags, PathFlags, filesystem_error_code,
};
use crate::wasi::io::streams::StreamError;

const PIECE: usize = 64 << 10;

fn shown<T: std::fmt::Debug>(outcome: Result<T, ErrorCode>) -> String {
    match outcome {
        Ok(value) => format!("{value:?}"),
        Err(code) => code.name().to_owned(),
    }
}

fn open(folder: &Descriptor, path: &str, how: OpenFlags, flags: Flags) -> Result<Descriptor, ErrorCode> {
    folder.open_at(PathFlags::SYMLINK_FOLLOW, path, how, flags)
}

fn read(folder: &Descriptor, path: &str) -> Result<String, ErrorCode> {
    let file = open(folder, path, OpenFlags::empty(), Flags::READ)?;
    let (data, _) = file.read(1 << 30, 0)?;
    Ok(String::from_utf8_lossy(&data).into_owned())
}

/// Makes a file of these bytes through a stream.
fn write(folder: &Descriptor, path: &str, data: &[u8]) -> Result<u64, ErrorCode> {
    let file = open(folder, path, OpenFlags::CREATE, Flags::READ | Flags::WRITE)?;
    let code = |error| match error {
        StreamError::LastOperationFailed(error) => filesystem_error_code(&error).unwrap_or(ErrorCode::Io),
        StreamError::Closed => ErrorCode::Pipe,
    };
    file.write_via_stream(0)?.blocking_write_and_flush(data).map_err(code)?;
    file.append_via_stream()?.blocking_write_and_flush(data).map_err(code)?;
    file.sync()?;
    Ok(file.stat()?.size)
}

/// Everything that would change a folder; each must be refused where it is read-only.
fn change(folder: &Descriptor, path: &str) -> Vec<String> {
    let existing = |flags| open(folder, path, OpenFlags::empty(), flags);
    vec![
        shown(open(folder, "new", OpenFlags::CREATE, Flags::READ).map(|_| ())),
        shown(open(folder, path, OpenFlags::TRUNCATE, Flags::READ).map(|_| ())),
        shown(existing(Flags::WRITE).map(|_| ())),
        shown(existing(Flags::READ).and_then(|file| file.write(b"x", 0))),
        shown(existing(Flags::READ).and_then(|file| file.set_size(0))),
        shown(existing(Flags::READ).and_then(|file| file.set_times(NewTimestamp::Now, NewTimestamp::Now))),
        shown(existing(Flags::READ).and_then(|file| file.write_via_stream(0)).map(|_| ())),
        shown(existing(Flags::READ).and_then(|file| file.append_via_stream()).map(|_| ())),
        shown(folder.create_directory_at("new")),
        shown(folder.unlink_file_at(path)),
        shown(folder.remove_directory_at("inner")),
        shown(folder.rename_at(path, folder, "moved")),
        shown(folder.set_times_at(PathFlags::empty(), path, NewTimestamp::Now, NewTimestamp::Now)),
        shown(folder.link_at(PathFlags::empty(), path, folder, "linked")),
        shown(folder.symlink_at("../outside", "linked")),
    ]
}

fn count(folder: &Descriptor) -> Result<usize, ErrorCode> {
    let listing = folder.read_directory()?;
    let mut entries = 0;
    while listing.read_directory_entry()?.is_some() {
        entries += 1;
    }
    Ok(entries)
}

pub(crate) fn strike(word: &str, about: &str) -> Option<String> {
    let folders = get_directories();
    if word == "folders" {
        return Some(folders.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(" "));
    }
    let (folder, _) = folders.first()?;
    let read_write = Flags::READ | Flags::WRITE;
    Some(match word {
        "read" => shown(read(folder, about)),
        "stat" => shown(folder.stat_at(PathFlags::SYMLINK_FOLLOW, about).map(|stat| stat.size)),
        "enter" => {
            shown(open(folder, about, OpenFlags::DIRECTORY, Flags::READ).and_then(|inner| read(&inner, "../../secret")))
        }
        "write" => shown(write(folder, about, b"twelve bytes")),
        "change" => change(folder, about).join(" "),
        "across" => shown(folder.rename_at(about, &folders.get(1)?.0, "moved")),
        "count" => shown(count(folder)),
        "copy" => {
            let from = open(folder, about, OpenFlags::empty(), Flags::READ).ok()?.read_via_stream(0).ok()?;
            let into = open(folder, "copy", OpenFlags::CREATE, read_write).ok()?.write_via_stream(0).ok()?;
            let mut copied = 0;
            while let Ok(piece) = into.blocking_splice(&from, 1 << 40) {
                copied += piece;
            }
            copied.to_string()
        }
        "hoard-files" => loop {
            forget(open(folder, about, OpenFlags::empty(), Flags::READ).ok()?);
        },
        "hoard-file-streams" => {
            let file = open(folder, about, OpenFlags::empty(), Flags::READ).ok()?;
            loop {
                forget(file.read_via_stream(0).ok()?);
            }
        }
        "hoard-listings" => loop {
            forget(folder.read_directory().ok()?);
        },
        "open-and-close" => {
            for _ in 0..5000 {
                let file = open(folder, about, OpenFlags::empty(), Flags::READ).ok()?;
                drop(file.read_via_stream(0).ok()?);
                drop(folder.read_directory().ok()?);
            }
            "done".into()
        }
        "fill" => {
            let file = open(folder, "full", OpenFlags::CREATE, read_write).ok()?;
            let mut at = 0;
            loop {
                at += file.write(&[1; PIECE], at).ok()?;
            }
        }
        "grow" => {
            let file = open(folder, "grown", OpenFlags::CREATE, read_write).ok()?;
            shown(file.set_size(1 << 50))
        }
        "litter" => {
            for name in 0_u64.. {
                open(folder, &name.to_string(), OpenFlags::CREATE, read_write).ok()?;
            }
            return None;
        }
        _ => return None,
    })
}
