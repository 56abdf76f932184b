// Package clock dates things so that they can be compared.
//
// Wall clocks are stepped, by people and by NTP, and a boot makes everything
// that was observed before it doubtful. An [Instant] is therefore a boot id and
// CLOCK_BOOTTIME, which counts from that boot, runs on through suspend and
// cannot be set; the wall clock is carried along for people only.
//
// The package is on the path of every exec, so it imports nothing heavy.
package clock
