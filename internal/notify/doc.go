// Package notify informs receivers of what happened to plans and VMs: it sends requests to webhooks and
// electronic mail, and runs commands. Receivers are in the notification file of an administrator
// (planfile.Notify).
//
//	Notifier.Run -> collector: fleetdb.Feed.Changes -> Event -> fleetdb.Notifications
//	             -> courier, one for each receiver: fleetdb.Notifications -> template -> sender
//
// One process of a fleet has the lease of the notifier. Events are derived from the rows of plans and
// VMs, and the same event has the same ID in each process and after each restart, so that the queue
// accepts it once. An attempt whose result is unknown is repeated with the same ID.
package notify
