//! How ids stand in paths and in bodies: as UUIDs.

use super::extract::{PathId, path_uuid};
use super::validate::{FieldError, Kind, Shape};
use crate::ids::{self, each_id};

macro_rules! in_requests {
    ($($name:ident),+) => {$(
        impl Shape for ids::$name {
            const KIND: Kind = Kind::Uuid;
        }

        impl PathId for ids::$name {
            const PARAMS: usize = 1;

            fn read(texts: &[(&str, &str)]) -> Result<Self, FieldError> {
                path_uuid(texts, 0).map(Self)
            }
        }
    )+};
}

each_id!(in_requests);
