package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/exposition"
	"github.com/decamp/decamp/internal/fleetdb"
)

// notificationAPI serves the numbers of notifications.
type notificationAPI struct{ control Control }

// registerRoutes implements resource.
func (a *notificationAPI) registerRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/notifications", id: "listNotifications", what: "count the notifications", role: View,
		details: "Those of the last 90 days, by receiver and state: pending, delivered or abandoned."}, a.list)
}

// list returns the numbers of notifications.
func (a *notificationAPI) list(ctx context.Context, _ *struct{}) (*listOut[fleetdb.NotificationCount], error) {
	counts, err := a.control.Notifications(ctx)
	return listOf(counts), err
}

// notificationFamily returns the numbers of notifications by receiver and state.
func notificationFamily(counts []fleetdb.NotificationCount) exposition.Family {
	all := newGauge("decamp_notifications", "Notifications of the last 90 days by state: pending, delivered or abandoned.", "receiver", "state")
	for _, c := range counts {
		all.Add(float64(c.Count), c.Receiver, string(c.State))
	}
	return all
}
