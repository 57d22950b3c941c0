//go:build slow

package cli

import "testing"

// A guest that has drivers for VMware's hardware only is converted to virtio. It boots before publication, and the
// published VM is the verified one.
func TestConvertedGuestBootsFromVirtio(t *testing.T) {
	t.Parallel()
	r := vmwareOnly(t)
	r.migrate("web01", "--hardware", "virtio", "--trial", "--expect", up).ends(0).says("converted: /boot/", "drivers appended", "trial boot: it boots, after", up)
	folder := r.converted("web01")
	r.run("verify", folder, "--spot", "1M", "--source", r.url()).ends(2).says("was converted")
}
