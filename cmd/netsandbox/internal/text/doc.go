// Package text renders the documents of package report for people: sentences
// and plain tables, the same bytes for the same document whatever the terminal.
//
// It never looks at a clock, a terminal or the environment; ages come with the
// documents and colour is the caller's decision. What came from outside (names,
// labels, file contents, canary output) cannot steer a terminal: control bytes
// are escaped here once more, whatever a document's maker did.
package text
