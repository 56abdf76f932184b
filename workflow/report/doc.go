// Package report is what is shown: the read models of every verb and, as JSON,
// the machine contract of docs/json.md.
//
// Fields are only ever added. Every document carries a schema name of the form
// "netsandbox/v1/<kind>"; a reader ignores fields it does not know. Paths and
// foreign text are escaped where they enter a document.
package report

// Schema returns the schema name of a document kind.
func Schema(kind string) string { return "netsandbox/v1/" + kind }
