//! Any bytes are either refused as a message of the pool, or are the encoding of the message that they are parsed as.
#![no_main]

use bulkmem_pool::protocol::{Request, Response};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Request::decode(bytes) {
        Ok(request) => assert_eq!(request.encode(), bytes),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(response) = Response::decode(bytes) {
        assert_eq!(response.encode(), bytes);
    }
});
