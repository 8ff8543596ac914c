package main

import (
	"fmt"
	"net"
	"os"
)

// serviceManager tells systemd how the start goes, by the protocol of sd_notify(3): a datagram of lines NAME=value to the socket that
// NOTIFY_SOCKET names. Without one, nothing is told. A message that cannot be delivered is no reason to stop serving.
type serviceManager struct{ socket string }

// managerFromEnv takes the socket's name out of the environment, so that no child inherits it.
func managerFromEnv() serviceManager {
	name := os.Getenv("NOTIFY_SOCKET")
	os.Unsetenv("NOTIFY_SOCKET") //nolint:errcheck // a name without = or NUL
	return serviceManager{name}
}

// status says in words what the service is doing; `systemctl status` shows it.
func (m serviceManager) status(text string) error { return m.send("STATUS=" + text) }

// ready says that work is accepted.
func (m serviceManager) ready() error { return m.send("READY=1\nSTATUS=ready") }

// stopping says that the service has begun to end.
func (m serviceManager) stopping() error {
	return m.send("STOPPING=1\nSTATUS=stopping: requests in flight finish")
}

func (m serviceManager) send(message string) error {
	if m.socket == "" {
		return nil
	}
	// A name that begins with @ is one of the abstract namespace; net knows that too.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte(message))
	return err
}
