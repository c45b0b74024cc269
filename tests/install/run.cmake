# cmake -D BUILD=... -D WORK=... -D PROJECT=... -D CXX=... -P run.cmake: installs the client component of BUILD, builds
# PROJECT against it, runs it.
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component client)
step(${CMAKE_COMMAND} -S ${PROJECT} -B ${WORK}/build -D CMAKE_PREFIX_PATH=${WORK}/prefix
     -D CMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${FLAGS}")
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/user)
step(${WORK}/build/inference)

# The serving client has no trainer's parts, and is small.
find_program(NM nm REQUIRED)
find_program(STRIP strip REQUIRED)
set(of_trainers "hotbed::(PushEngine|PullEngine|SaveCheckpoint)")
foreach(program user inference)
  execute_process(COMMAND ${NM} -C ${WORK}/build/${program} OUTPUT_VARIABLE symbols_of_${program} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
if(NOT symbols_of_user MATCHES "${of_trainers}")
  message(FATAL_ERROR "a trainer's program has no ${of_trainers}: name other parts of trainers here")
endif()
if(symbols_of_inference MATCHES "${of_trainers}[^\n]*")
  message(FATAL_ERROR "a program of hotbed::serving_client has parts of trainers: ${CMAKE_MATCH_0}")
endif()
if(NOT FLAGS)  # a sanitizer makes programs larger
  step(${STRIP} ${WORK}/build/inference)
  file(SIZE ${WORK}/build/inference bytes)
  message(STATUS "a stripped program of hotbed::serving_client has ${bytes} bytes")
  if(bytes GREATER_EQUAL 5000000)
    message(FATAL_ERROR "a stripped program of hotbed::serving_client has ${bytes} bytes; allowed: less than 5000000")
  endif()
endif()
