package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/systemd"
)

// notifyAndWatch reports that the server at addr is ready, notifies the watchdog as long as the server
// responds, and reports when it stops. Without systemd it does nothing.
func notifyAndWatch(ctx context.Context, addr net.Addr, plain bool, log *slog.Logger) error {
	finish, err := systemd.Announce(ctx, "serving on "+addr.String())
	defer finish()
	if err != nil {
		log.Warn("no notification to systemd", "err", err)
	}
	every := systemd.WatchdogInterval()
	if every == 0 {
		<-ctx.Done()
		return nil
	}
	for sleep.For(ctx, every) == nil {
		if err := checkHealth(ctx, addr, plain); err != nil {
			log.Error("watchdog not notified: the server does not respond to its own request", "err", err)
			continue
		}
		_ = systemd.Notify("WATCHDOG=1") // if it fails, systemd restarts the server
	}
	return nil
}

// checkHealth sends the server at addr a request as any client could. The server's certificate is not
// verified, because this process owns it.
func checkHealth(ctx context.Context, addr net.Addr, plain bool) error {
	scheme := "https"
	if plain {
		scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://localhost/healthz", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: readyTime, Transport: &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dialListener(ctx, addr) },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /healthz: %s", resp.Status)
	}
	return nil
}

// dialListener connects to a listener of this process. It looks up no name: a server without a working resolver is
// healthy.
func dialListener(ctx context.Context, addr net.Addr) (conn net.Conn, err error) {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return nil, err
	}
	hosts := []string{host}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		hosts = []string{"127.0.0.1", "::1"} // a listener on all addresses may accept one kind only
	}
	var d net.Dialer
	for _, h := range hosts {
		if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(h, port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
