//! What statements are given, with the type that the server is to take it for. Behind a pooler a statement cannot be prepared beforehand, so
//! that nobody can ask the server for the types of its parameters.

use tokio_postgres::types::{ToSql, Type};

use crate::row::Uid;

/// A value whose type is known without asking the server.
pub(crate) trait Param: ToSql {
    /// What the server is to take it for.
    fn sql_type(&self) -> Type;
}

/// A type of the server's for a type of ours, and for a list of it.
pub(crate) trait Typed {
    const TYPE: Type;
    const LIST: Type;
}

impl<T: Typed + ToSql> Param for T {
    fn sql_type(&self) -> Type {
        T::TYPE
    }
}

macro_rules! typed {
    ($($ours:ty => $type:ident, $list:ident;)*) => {
        $(impl Typed for $ours {
            const TYPE: Type = Type::$type;
            const LIST: Type = Type::$list;
        })*
    };
}

typed! {
    bool => BOOL, BOOL_ARRAY;
    i16 => INT2, INT2_ARRAY;
    i32 => INT4, INT4_ARRAY;
    i64 => INT8, INT8_ARRAY;
    String => TEXT, TEXT_ARRAY;
    &str => TEXT, TEXT_ARRAY;
    Vec<u8> => BYTEA, BYTEA_ARRAY;
    Uid => UUID, UUID_ARRAY;
}

impl<T: Typed> Typed for Option<T> {
    const TYPE: Type = T::TYPE;
    const LIST: Type = T::LIST;
}

/// A list. There are no lists of lists: these must all be of one length, and are sent as texts instead.
impl<T: Typed> Typed for Vec<T> {
    const TYPE: Type = T::LIST;
    const LIST: Type = T::LIST;
}

impl<T: Typed> Typed for &[T] {
    const TYPE: Type = T::LIST;
    const LIST: Type = T::LIST;
}
