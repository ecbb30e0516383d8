//! HTTP code that every protocol uses: request bodies and their limits, content negotiation, compression, responses.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod compressed_members;
pub(crate) mod compression;
pub(crate) mod json_list;
pub(crate) mod json_text;
pub(crate) mod path_name;
pub(crate) mod response;
pub(crate) mod status;
pub(crate) mod yielding_body;
