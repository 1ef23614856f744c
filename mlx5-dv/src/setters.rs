//! The setters of options, which are all of one style: every field is public, and has a setter of its name, so that
//! `Options::default().depth(8).events()` is one expression.

/// Declares setters: `field: Type;` takes the field's value, `field: Some(Type);` what an optional field holds, and
/// `field = true;` nothing.
macro_rules! setters {
    ($options:ty { $($fields:tt)* }) => {
        impl $options {
            $crate::setters::setters!(@each $($fields)*);
        }
    };
    (@each) => {};
    (@each $field:ident = true; $($rest:tt)*) => {
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        pub fn $field(mut self) -> Self {
            self.$field = true;
            self
        }
        $crate::setters::setters!(@each $($rest)*);
    };
    (@each $field:ident: Some($value:ty); $($rest:tt)*) => {
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        pub fn $field(mut self, $field: $value) -> Self {
            self.$field = Some($field);
            self
        }
        $crate::setters::setters!(@each $($rest)*);
    };
    (@each $field:ident: $value:ty; $($rest:tt)*) => {
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        pub fn $field(mut self, $field: $value) -> Self {
            self.$field = $field;
            self
        }
        $crate::setters::setters!(@each $($rest)*);
    };
}
pub(crate) use setters;
