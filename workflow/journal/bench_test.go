package journal

import (
	"fmt"
	"testing"
)

// BenchmarkOpen shows what judging the whole file at every open costs.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{0, 1_000, 20_000} {
		b.Run(fmt.Sprintf("%d events", n), func(b *testing.B) {
			dir := b.TempDir()
			s, err := Open(b.Context(), dir, Options{})
			if err != nil {
				b.Fatal(err)
			}
			err = s.Update(b.Context(), func(tx *Tx) error {
				for range n {
					if _, err := tx.Event(Event{Env: "01", Event: "circuit.checked", Data: []byte(`{"circuit":"api","outcome":"Preserved"}`)}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			s.Close()
			for b.Loop() {
				s, err := Open(b.Context(), dir, Options{})
				if err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}
