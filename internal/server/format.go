package server

import (
	"fmt"
	"strings"
)

// resourceWords returns the name of a resource as words: "host esx1 vms" for host:esx1/vms.
func resourceWords(name string) string {
	kind, rest, found := strings.Cut(name, ":")
	if !found {
		return name
	}
	of, unit, _ := strings.Cut(rest, "/")
	return strings.TrimSpace(kind + " " + of + " " + unit)
}

// formatBytes formats a size for users, in binary units.
func formatBytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}

// formatRate formats bytes per second for users, in decimal units; "" for a rate of 0.
func formatRate(n int64) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f MB/s", float64(n)/1e6)
}

// percentOf returns part of all in percent, at most 100; 0 if all is 0.
func percentOf(part, all int64) int64 {
	if all <= 0 {
		return 0
	}
	return min(100, part*100/all)
}
