use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{Error, Signature, Values};

/// A step of a pipeline. [`export!`](crate::export) makes a component of it.
pub trait Step: Sized + 'static {
    /// What gpux.yml may say under `options:`. serde reads it, and its JSON Schema, doc comments
    /// included, is what `gpux inspect` shows and what gpux checks a gpux.yml against.
    type Options: DeserializeOwned + JsonSchema;

    /// One line for people: what the step does.
    const SUMMARY: &str;

    /// The JSON Schema of the options, where it is written down: `Some(include_str!("../options.json"))`.
    /// Otherwise the component makes it when it is asked, which costs it 85 kB. The file is written
    /// and guarded by a test that calls [`testing::check_schema`](crate::testing::check_schema).
    const OPTIONS_SCHEMA: Option<&str> = None;

    /// Sets the step up, and says what it takes and gives with these options. Whatever can be
    /// prepared once (tables, patterns) belongs here: gpux keeps the configured step as a snapshot
    /// and starts each request from it. So it must come to the same each time, and keep no
    /// [`Tensor`](crate::Tensor).
    ///
    /// Error: options that their schema allows and that still cannot work.
    fn configure(options: Self::Options) -> Result<(Self, Signature), Error>;

    /// Works on one request. `inputs` holds a value for each input of the signature, in order,
    /// without the optional ones left out; the result must hold one for each output.
    fn process(&self, inputs: Values) -> Result<Values, Error>;
}

/// Makes the component of a [`Step`]: `gpux_step::export!(MyStep);`, once in a crate of type
/// `cdylib`. Where the crate is compiled for anything but WebAssembly (its unit tests), nothing.
#[macro_export]
macro_rules! export {
    ($step:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            ::std::thread_local! {
                static CONFIGURED: ::core::cell::Cell<::core::option::Option<&'static $step>> =
                    const { ::core::cell::Cell::new(::core::option::Option::None) };
            }

            struct Exported;

            impl $crate::__private::Guest for Exported {
                fn describe() -> $crate::__private::Description {
                    $crate::__private::describe::<$step>()
                }

                fn configure(
                    options: ::std::string::String,
                ) -> ::core::result::Result<$crate::__private::Signature, $crate::__private::Error> {
                    $crate::__private::configure::<$step>(&CONFIGURED, &options)
                }

                fn process(
                    inputs: ::std::vec::Vec<$crate::__private::NamedValue>,
                ) -> ::core::result::Result<::std::vec::Vec<$crate::__private::NamedValue>, $crate::__private::Error>
                {
                    $crate::__private::process::<$step>(&CONFIGURED, inputs)
                }
            }

            $crate::__private::export_step!(Exported);
        };

        #[cfg(not(target_arch = "wasm32"))]
        const _: () = $crate::__private::is_a_step::<$step>();
    };
}
