# `cmake --install BUILD --prefix P --component client`: headers, static libraries and hotbedConfig.cmake, so that
# find_package(hotbed) and hotbed::client work from P.
include(CMakePackageConfigHelpers)

set(hotbed_include_dir ${CMAKE_INSTALL_INCLUDEDIR}/hotbed-${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(hotbed_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hotbed)

set(installed hotbed_proto_generated)
foreach(library client serving_client checkpoint places servers_place leader proto common row_math security)
  set_target_properties(hotbed_${library} PROPERTIES EXPORT_NAME ${library})
  list(APPEND installed hotbed_${library})
endforeach()
hotbed_packaged(${installed})
install(TARGETS ${installed}
        EXPORT hotbedTargets COMPONENT client
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${hotbed_include_dir})
install(EXPORT hotbedTargets NAMESPACE hotbed:: DESTINATION ${hotbed_config_dir} COMPONENT client)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/client/include/hotbed DESTINATION ${hotbed_include_dir}
        COMPONENT client FILES_MATCHING PATTERN "*.h" PATTERN local.h EXCLUDE)
# What the public headers include, and nothing else.
foreach(header common/threads/await_for.h common/clock.h common/ids.h common/schedule.h common/scored_row.h common/tables/table_spec.h row_math/metric.h row_math/touches.h
        row_math/types.h)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${hotbed_include_dir}/${folder}
          COMPONENT client)
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/hotbedConfig.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/hotbedConfig.cmake
                              INSTALL_DESTINATION ${hotbed_config_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/hotbedConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/hotbedConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/hotbedConfigVersion.cmake
        DESTINATION ${hotbed_config_dir} COMPONENT client)
