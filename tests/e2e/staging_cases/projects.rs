//! Small projects of other languages, offline: what their tools make is the same as outside.

use crate::support::{Capability, each_driver_and_user, require};

each_driver_and_user! {
    /// A package is installed from a directory beside, and used.
    fn an_npm_project(stage) {
        require!(stage, Capability::Program("npm"));
        let both = stage.beside_twin(
            "mkdir dep; echo '{\"name\":\"dep\",\"version\":\"1.2.3\",\"main\":\"main.js\"}' >dep/package.json; \
             echo 'module.exports = n => n * 2' >dep/main.js",
            "set -e; export npm_config_offline=true npm_config_audit=false npm_config_fund=false \
             npm_config_update_notifier=false npm_config_logs_max=0 npm_config_cache=$(mktemp -d); \
             mkdir app; cd app; npm init -y >/dev/null; npm install --silent --install-links ../dep >/dev/null; \
             node -e 'console.log(require(\"dep\")(21))'; npm ls --parseable --depth 0 | wc -l; \
             npm uninstall --silent dep >/dev/null; npm install --silent ../dep >/dev/null; \
             readlink node_modules/dep; rm -rf \"$npm_config_cache\"",
        );
        both.both_print("42\n2\n../../dep\n");
        let lines = both.changes.lines();
        assert!(lines.contains(&"added app/package-lock.json".into()), "{lines:?}");
    }
}

each_driver_and_user! {
    /// A virtual environment, a module and its tests.
    fn a_python_project(stage) {
        require!(stage, Capability::Program("python3"));
        // The environment tells where it lies: that cannot be the same in two places.
        let both = stage.beside_twin(
            "mkdir pkg; : >pkg/__init__.py; echo 'def twice(n): return n + n' >pkg/sums.py",
            "set -e; export PYTHONDONTWRITEBYTECODE=1; python3 -m venv --without-pip env; \
             printf 'import unittest\\nfrom pkg.sums import twice\\nclass T(unittest.TestCase):\\n    def test(self): self.assertEqual(twice(21), 42)\\n' >test_sums.py; \
             env/bin/python -m unittest -q 2>/dev/null && echo passed; \
             env/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'; \
             sed -i 's/n + n/n * 3/' pkg/sums.py; env/bin/python -m unittest -q 2>/dev/null || echo failed; \
             grep -rlF \"$PWD\" env | while read -r f; do sed -i \"s|$PWD|.|g\" \"$f\"; done",
        );
        both.both_print("passed\nTrue\nfailed\n");
        let lines = both.changes.lines();
        for line in ["modified pkg/sums.py", "added test_sums.py", "added env/pyvenv.cfg"] {
            assert!(lines.contains(&line.into()), "{line} in {lines:?}");
        }
    }
}
