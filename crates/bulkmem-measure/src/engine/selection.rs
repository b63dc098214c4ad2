//! The candidates of a measurement besides the policy, selected before anything is measured.

use bulkmem::Operation;
use bulkmem::machine;
use bulkmem::method;
use bulkmem::policy::Choice;

use crate::engine::Candidate;
use crate::engine::implementation::{self, Implementation, MethodSet};
use crate::{Kind, MeasureError, OptionName};

/// Candidates besides methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peers {
    /// None.
    None,
    /// The C library, libpmem where it is installed, the kernel, and reading.
    #[default]
    All,
}

/// The candidates besides the policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) implementations: Vec<Implementation<'static>>,
    /// Why a library is missing.
    pub(crate) missing: Option<&'static str>,
}

impl Selection {
    /// Selects the methods, the baseline and, if wanted, the C library and other libraries.
    ///
    /// # Errors
    /// [`MeasureError::Method`] for a method that cannot be used here; [`MeasureError::Option`] for a baseline that
    /// takes no part, with the names of those who do.
    pub(crate) fn new(
        operation: Operation,
        wanted: &MethodSet,
        peers: Peers,
        baseline: Option<&str>,
        others: &[&str],
    ) -> Result<Selection, MeasureError> {
        let mut methods = implementation::methods(wanted, operation)?;
        let c_library = Choice::of(method::c_library(), operation);
        match peers {
            Peers::All if !methods.contains(&c_library) => methods.push(c_library),
            // Who asks for it by name gets it.
            Peers::None if !matches!(wanted, MethodSet::Named(_)) => methods.retain(|it| *it != c_library),
            _ => {}
        }
        let mut selection = Selection::default();
        let libraries = match peers {
            Peers::None => Vec::new(),
            Peers::All => implementation::libraries(operation).unwrap_or_else(|reason| {
                selection.missing = Some(reason);
                Vec::new()
            }),
        };
        let mut names: Vec<String> = others.iter().map(|name| (*name).to_owned()).collect();
        names.extend(libraries.iter().map(|library| library.candidate().name));
        let named = |text: &str, choice: &Choice| choice.to_string() == text || choice.method.name == text;
        if let Some(baseline) = baseline
            && !names.iter().any(|name| name == baseline)
            && !methods.iter().any(|choice| named(baseline, choice))
        {
            match Choice::parse(baseline, operation, machine::features()) {
                Ok(choice) => methods.push(choice),
                Err(error) => {
                    names.extend(methods.iter().map(Choice::to_string));
                    let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                    // Of a method that there is, why not; of others, all that there are would be said.
                    let known = baseline.split('[').next().and_then(method::by_name);
                    let why = known.map(|_| format!(" ({error})")).unwrap_or_default();
                    return Err(MeasureError::Option {
                        option: OptionName::Baseline,
                        reason: format!(
                            "`{baseline}` takes no part{why}; name another method, or one of {names}"
                        ),
                    });
                }
            }
        }
        for (at, choice) in methods.iter().enumerate() {
            if !methods[..at].contains(choice) {
                selection.implementations.push(Implementation::Method(*choice));
            }
        }
        selection.implementations.extend(libraries);
        Ok(selection)
    }

    /// Fills with this byte, libraries included.
    pub(crate) fn filling(mut self, byte: u8) -> Selection {
        for implementation in &mut self.implementations {
            if let Implementation::Peer(peer) = implementation {
                *peer = peer.filling(byte);
            }
        }
        self
    }
}

/// The name of the kernel's candidate.
pub(crate) const FIRST_TOUCH: &str = "first touch";

/// The kernel, where it is measured at all.
pub(crate) fn kernel() -> Candidate {
    Candidate::named(Kind::Kernel, FIRST_TOUCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: &[&str], peers: Peers, baseline: Option<&str>) -> Result<Vec<String>, String> {
        let wanted = MethodSet::Named(wanted.iter().map(|name| (*name).to_owned()).collect());
        let selection = Selection::new(Operation::Fill, &wanted, peers, baseline, &["policy", "read"]);
        let names = |selection: Selection| {
            selection.implementations.iter().map(|implementation| implementation.candidate().name).collect()
        };
        selection.map(names).map_err(|error| error.to_string())
    }

    #[test]
    fn everybody_takes_part_once() {
        assert_eq!(names(&["portable", "portable"], Peers::None, None).unwrap(), ["portable"]);
        assert_eq!(names(&["c_library"], Peers::None, None).unwrap(), ["c_library"]);
        let all = names(&["portable"], Peers::All, None).unwrap();
        assert_eq!(all[..2], ["portable", "c_library"]);
        let none =
            Selection::new(Operation::Clear, &MethodSet::Representative, Peers::None, None, &[]).unwrap();
        assert!(
            none.implementations.iter().all(|implementation| implementation.candidate().kind == Kind::Method),
            "{none:?}"
        );
    }

    #[test]
    fn a_baseline_takes_part_or_is_refused_with_those_who_do() {
        let with = names(&["portable"], Peers::None, Some("c_library")).unwrap();
        assert_eq!(with, ["portable", "c_library"]);
        assert_eq!(names(&["portable"], Peers::None, Some("policy")).unwrap(), ["portable"]);
        assert_eq!(names(&["portable"], Peers::None, Some("portable")).unwrap(), ["portable"]);
        let refused = names(&["portable"], Peers::None, Some("nosuch")).unwrap_err();
        for word in ["--baseline: ", "`nosuch` takes no part", "`policy`, `read`, `portable`"] {
            assert!(refused.contains(word), "{word}: {refused}");
        }
        let refused = names(&["portable"], Peers::None, Some("rep_movsb")).unwrap_err();
        assert!(refused.contains("takes no part (") && refused.contains("`rep_movsb`"), "{refused}");
    }
}
