#include "common/daemon.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"

namespace hotbed {

void BeginDaemon() {
  umask(077);
  if (geteuid() != 0) return;
  HOTBED_LOG(Warning)
      << "running as root: whoever takes this process over has the machine; nothing "
         "here needs it, so run it as a user of its own";
}

}  // namespace hotbed
