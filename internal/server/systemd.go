package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/decamp/decamp/internal/sleep"
)

// notifyAndWatch reports that the server at addr is ready, notifies the watchdog as long as the server
// responds, and reports when it stops. Without systemd it does nothing. See sd_notify(3).
func notifyAndWatch(ctx context.Context, addr net.Addr, plain bool, log *slog.Logger) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	defer notifySystemd(socket, "STOPPING=1")
	if err := notifySystemd(socket, "READY=1\nSTATUS=serving on "+addr.String()); err != nil {
		log.Warn("no notification to systemd", "err", err)
	}
	every := watchdogInterval()
	if every == 0 {
		<-ctx.Done()
		return nil
	}
	for sleep.For(ctx, every) == nil {
		if err := checkHealth(ctx, addr, plain); err != nil {
			log.Error("watchdog not fed: the server does not answer itself", "err", err)
			continue
		}
		_ = notifySystemd(socket, "WATCHDOG=1") // if it fails, the watchdog bites
	}
	return nil
}

// notifySystemd sends a state to the socket of systemd.
func notifySystemd(socket, state string) error {
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

// watchdogInterval returns the interval of notifications: half of systemd's limit
// (sd_watchdog_enabled(3)). 0 means that systemd expects none from this process.
func watchdogInterval() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}

// checkHealth sends the server a request as any client could. The server's certificate is not verified,
// because this process owns it.
func checkHealth(ctx context.Context, addr net.Addr, plain bool) error {
	scheme := "https"
	if plain {
		scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+localAddress(addr)+"/healthz", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: readyTime, Transport: &http.Transport{
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

// localAddress returns the address at which a listener is reached from this machine.
func localAddress(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
