//! Enumerations with a text for each variant.

/// Defines an enumeration. `ALL` lists its values in the order of declaration. Each function listed after the
/// type name returns the text of a variant, in the same order: `name`, stable in reports and exports, and
/// `words`, for display. The enumeration is serialized by its name.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $type:ident: $($function:ident)+ {
            $($(#[$doc:meta])* $variant:ident $(= $number:literal)? $name:literal $($text:literal)*,)*
        }
    ) => {
        $(#[$meta])*
        $vis enum $type {
            $($(#[$doc])* #[doc = concat!("\n`", $name, "`")] $variant $(= $number)?,)*
        }

        impl $type {
            /// All values, in the order of declaration.
            pub const ALL: [Self; [$(stringify!($variant)),*].len()] = [$(Self::$variant),*];

            $crate::named!(@ $($function)+; $($variant [$name $($text)*])*);
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
    (@ name $($function:ident)*; $($variant:ident [$text:literal $($more:literal)*])*) => {
        $crate::named!(@ "Stable name, in reports and exports." name; $($variant $text)*);
        $crate::named!(@ $($function)*; $($variant [$($more)*])*);
    };
    (@ words; $($variant:ident [$text:literal])*) => {
        $crate::named!(@ "Words for people." words; $($variant $text)*);
    };
    (@ $doc:literal $function:ident; $($variant:ident $text:literal)*) => {
        #[doc = $doc]
        #[must_use]
        pub const fn $function(self) -> &'static str {
            match self {
                $(Self::$variant => $text,)*
            }
        }
    };
    (@; $($rest:tt)*) => {};
}
pub use named;
