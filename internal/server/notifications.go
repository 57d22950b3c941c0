package server

import (
	"github.com/decamp/decamp/internal/exposition"
	"github.com/decamp/decamp/internal/fleetdb"
)

// notificationFamily returns the numbers of notifications by receiver and state.
func notificationFamily(counts []fleetdb.NotificationCount) exposition.Family {
	all := newGauge("decamp_notifications", "Notifications of the last 90 days by state: pending, delivered or abandoned.", "receiver", "state")
	for _, c := range counts {
		all.Add(float64(c.Count), c.Receiver, string(c.State))
	}
	return all
}
