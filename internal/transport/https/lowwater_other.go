//go:build !linux

package https

import "net"

// setLowWater does nothing: elsewhere the poller ignores low-water marks.
func setLowWater(net.Conn, int) {}
