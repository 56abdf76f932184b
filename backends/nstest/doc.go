// Package nstest gives tests a kernel of their own to break: a fresh network
// and mount namespace per test, entered by the test's own thread and gone with
// it, so that nothing a test does can reach the machine it runs on.
//
// A test names what it needs; every need is probed by doing the thing in a
// scratch namespace, never by comparing versions:
//
//	func TestMain(m *testing.M) { nstest.Main(m) }
//
//	func TestTrialLapseRestoresRoute(t *testing.T) {
//		ns := nstest.New(t, nstest.Root, nstest.NetNS, nstest.NFT)
//		…
//	}
//
// Without -nstest.require a missing ability skips the test, and [Main] ends the
// run with a line that counts the skips, so that a green run is not mistaken
// for a full one. With it a missing ability is a failure.
//
// The rules of the place: the namespaces belong to the thread of the test's
// goroutine. Commands started from it inherit them; other goroutines do not,
// nor do subtests: use [NS.Go] and [NS.Run] for those. The thread is never given
// back to the runtime. The package is for tests only and imports nothing of ours.
package nstest
