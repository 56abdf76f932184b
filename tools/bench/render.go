package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// render prints one table for all suites that reported something.
func render(w io.Writer, suites []suite) {
	fmt.Fprintln(w, "| what | ours | against | ratio | bar | |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- |")
	for _, s := range suites {
		for _, r := range s.rows {
			fmt.Fprintln(w, r.line(s.got))
		}
	}
	fmt.Fprintln(w)
	for _, s := range suites {
		fmt.Fprintf(w, "%s: %d rounds, load %s to %s\n", strings.TrimSuffix(s.name(), "$"), s.rounds, s.load[0], s.load[1])
	}
}

func (r row) line(got map[string]float64) string {
	value := func(metric string) string {
		v, ok := got[metric]
		switch {
		case metric == "":
			return ""
		case !ok:
			return "not measured"
		}
		return number(v) + " " + unit(metric)
	}
	ratio := ""
	if v, ok := got[r.ratio]; ok {
		ratio = number(v)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", r.what, value(r.ours), value(r.theirs), ratio, r.limit(), r.verdict(got))
}

// limit is the bar in words.
func (r row) limit() string {
	switch {
	case r.bar == 0:
		return ""
	case r.least:
		return "≥ " + number(r.bar)
	}
	limit := "≤ " + number(r.bar)
	if r.ratio == "" {
		limit += " " + unit(r.ours)
	}
	return limit
}

func (r row) verdict(got map[string]float64) string {
	metric := r.ratio
	if metric == "" {
		metric = r.ours
	}
	v, ok := got[metric]
	switch {
	case r.bar == 0 || !ok:
		return ""
	case r.least == (v >= r.bar) || v == r.bar:
		return "met"
	}
	return "missed"
}

// unit is what follows the last dash of a metric.
func unit(metric string) string { return metric[strings.LastIndexByte(metric, '-')+1:] }

// number has three digits that count.
func number(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
