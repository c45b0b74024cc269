# `./dev package` (cpack in a build folder): Debian packages of the programs and of the client library. They depend on the
# distribution's own gRPC, Abseil and RocksDB, so they are for the release on which they were built.
foreach(daemon server coordinator)
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/hotbed-${daemon}.service DESTINATION lib/systemd/system
          COMPONENT ${daemon} EXCLUDE_FROM_ALL)
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/hotbed-${daemon}.yaml DESTINATION share/hotbed
          COMPONENT ${daemon} EXCLUDE_FROM_ALL)
endforeach()
# The same program with read copies for inference.
install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/hotbed-serving.service DESTINATION lib/systemd/system
        COMPONENT server EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/hotbed-serving.yaml DESTINATION share/hotbed COMPONENT server EXCLUDE_FROM_ALL)
foreach(package server coordinator cli)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/hotbed-${package} RENAME copyright
          COMPONENT ${package} EXCLUDE_FROM_ALL)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/libhotbed-dev RENAME copyright
        COMPONENT client EXCLUDE_FROM_ALL)
install(CODE "set(completions \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/bash-completion/completions\")
              file(MAKE_DIRECTORY \${completions})
              execute_process(COMMAND $<TARGET_FILE:hotbed> completion bash OUTPUT_FILE \${completions}/hotbed
                              COMMAND_ERROR_IS_FATAL ANY)" COMPONENT cli EXCLUDE_FROM_ALL)

# cpack builds nothing itself.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hotbed)
set(CPACK_PACKAGE_VENDOR "Hotbed")
set(CPACK_PACKAGE_CONTACT "The Hotbed developers <hotbed@localhost>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL server coordinator cli client)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
foreach(component SERVER COORDINATOR CLI)
  set(CPACK_DEBIAN_${component}_PACKAGE_SHLIBDEPS ON)
endforeach()
# Loaded when a process first talks to an object store (places/curl_library.h).
foreach(component SERVER COORDINATOR CLI)
  set(CPACK_DEBIAN_${component}_PACKAGE_DEPENDS "libcurl4, ca-certificates")
endforeach()
set(CPACK_DEBIAN_SERVER_PACKAGE_NAME hotbed-server)
set(CPACK_COMPONENT_SERVER_DESCRIPTION "Hotbed: the server that holds shards of embedding tables")
set(CPACK_DEBIAN_SERVER_PACKAGE_SUGGESTS hotbed-cli)
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_NAME hotbed-coordinator)
set(CPACK_COMPONENT_COORDINATOR_DESCRIPTION "Hotbed: the coordinator, which places shards on servers")
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_SUGGESTS hotbed-cli)
set(CPACK_DEBIAN_CLI_PACKAGE_NAME hotbed-cli)
set(CPACK_COMPONENT_CLI_DESCRIPTION "Hotbed: the command line, and trainers of examples")
set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME libhotbed-dev)
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_CLIENT_PACKAGE_DEPENDS "libgrpc++-dev, libprotobuf-dev, libabsl-dev, libzstd-dev, libcurl4, ca-certificates")
set(CPACK_COMPONENT_CLIENT_DESCRIPTION "Hotbed: headers and static library of the C++ client")

# The user of the daemons, and a configuration to begin with.
foreach(daemon server coordinator)
  set(configurations ${daemon})
  if(daemon STREQUAL server)
    set(configurations "server serving")
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/deploy/systemd/postinst.in ${PROJECT_BINARY_DIR}/package_${daemon}/postinst @ONLY
                 FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  string(TOUPPER ${daemon} component)
  set(CPACK_DEBIAN_${component}_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/package_${daemon}/postinst)
endforeach()
include(CPack)
