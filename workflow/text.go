package workflow

import (
	"strconv"
	"unicode/utf8"
)

func itoa(n int) string { return strconv.Itoa(n) }

// clip shortens s to at most n bytes without cutting a rune.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
