// Package reexec turns the running program into one of its light parts when it
// was started under that part's name, before anything heavy is initialised.
//
// PID 1 of a view is this same program, started anew at every rebuild. Go
// initialises packages in order of their import paths as soon as what they
// import is ready, so an init function here, below github.com/netsandbox and
// with light imports, runs before those of gvisor.dev, modernc.org or
// github.com/spf13. That is why the package has one, and why it must not import
// anything of the workflow. Import it from main for its side effect.
package reexec
